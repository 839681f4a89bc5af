"""Material that the measurements of quality share: clips, photographs with masks, known truths."""
