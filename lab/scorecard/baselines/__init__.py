"""Published predictors, reimplemented from their papers and scored on the same rows as ours."""
