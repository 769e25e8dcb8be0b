"""How the shipped retriever is made: pairs, encoder, static table, fusion, export, figures, model card.

The product imports nothing from here. `features.py` and `ranker.py` give the other modules the product's own words
and ranking. Each step is a command; `README.md` lists them.
"""
