"""A results file as one HTML page that needs nothing beside itself: ``facts`` counts, ``charts`` draws, ``page`` writes.

What programs and completions made goes through ``text.visible`` and then
through the template's own escaping; the page's content security policy allows
no request at all and no script but its own.
"""
