"""The DSpark paper's offline studies, repeated on drafters and traces at hand: ``dspark-sim study``."""
