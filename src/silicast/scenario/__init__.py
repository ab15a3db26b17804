"""The scenario contract: one input format for every layer, and the answers to it.

Decoding is :mod:`silicast.scenario.decode`, running one scenario :mod:`silicast.scenario.run`,
many :mod:`silicast.runner.batch`. Each task is answered by one folder of ``answers``.
"""
