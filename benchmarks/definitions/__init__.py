"""What tool definitions cost in each form, and whether the smaller forms still do their job."""
