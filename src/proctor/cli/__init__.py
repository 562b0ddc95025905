"""The command line: thin verbs over the layers below."""
