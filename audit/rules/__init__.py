"""Judging: pure functions from what was measured to what it means. No torch, no device, no clock.

``judge.judge`` turns a run into a judgement; ``registry.RULES`` lists every rule; ``codes.CODES`` every code.
"""
