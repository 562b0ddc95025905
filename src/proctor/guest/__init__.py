"""What runs inside: agent, zygote, jail, case. Standard library only.

The host imports ``protocol`` alone; the rest is run by the image's own
interpreter through ``main.py``, under the package name ``proctor_guest``.
"""
