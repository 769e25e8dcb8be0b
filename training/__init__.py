"""How the retriever that ships is made: pairs, encoder, static table, fusion, export, figures, card.

Nothing here is imported by the product; what the product needs at run time is in `features.py` and
`ranker.py`, which know numpy and a stemmer only. Each step is a command; `README.md` lists them.
"""
