"""Semi-supervised video object segmentation on data sets with true masks: how good a model is."""
