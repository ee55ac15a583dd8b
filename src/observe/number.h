// observe/number.h: numbers as people read them.
//
// Whatever the locale of the process is, the decimal mark is a point. Fails only for memory. Safe
// from any thread.

#ifndef CY_OBSERVE_NUMBER_H
#define CY_OBSERVE_NUMBER_H

#include "base/text.h"

// For people: three significant digits and K, M, B or T for 10^3, 10^6, 10^9, 10^12: 512, 8.19K,
// 98.3K, 1.00M. Rounding may carry into the next unit: 999,950 is 1.00M.
CY_MUST_CHECK cy_status cy_number_short(cy_text *text, double value);

// With `digits` digits after the point, printf's %.*f; `nan`, `inf` and `-inf` for what is not
// finite.
CY_MUST_CHECK cy_status cy_number_fixed(cy_text *text, double value, int digits);

#endif
