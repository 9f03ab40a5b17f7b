"""The real pair: target, drafters, training, verification, recording. The only package that needs torch.

Reading order: ``layers`` and ``target`` (who is drafted for), ``drafter`` with ``heads`` (what is drafted),
``losses`` and ``trainer`` (how it learns), then ``verify`` and ``record`` (how it is used).
"""
