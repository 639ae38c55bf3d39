"""Record batches as the broker keeps them, to Arrow columns, without a loop per record."""
