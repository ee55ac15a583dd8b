// base/median.h: the median of measurements.

#ifndef CY_BASE_MEDIAN_H
#define CY_BASE_MEDIAN_H

// Sorts values [count] in ascending order, count at least 1. The mean of the two in the middle
// where count is even. A pure function but for the order it leaves; no value may be NaN.
double cy_median(double *values, int count);

#endif
