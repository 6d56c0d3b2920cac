"""Two runs compared, so that CI can stop a bad upgrade: pure functions of what was measured, without GPU and torch.

``side`` reduces a judged run to what is compared, ``comparison`` finds the differences, ``policy`` and ``waivers`` say
which of them fail, ``outcome`` draws the conclusion, ``registry`` names the forms in which it is written.
"""
