#include "observe/number.h"

#include <math.h>
#include <stdio.h>

// The sign of what is no number says nothing and differs from processor to processor.
static cy_status add_not_finite(cy_text *text, double value)
{
    return cy_text_add(text, "%g", isnan(value) ? fabs(value) : value);
}

cy_status cy_number_fixed(cy_text *text, double value, int digits)
{
    if (!isfinite(value)) return add_not_finite(text, value);
    char printed[400];
    snprintf(printed, sizeof(printed), "%.*f", digits, value);
    cy_number_set_point(printed);
    return cy_text_add(text, "%s", printed);
}

cy_status cy_number_short(cy_text *text, double value)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    if (!isfinite(value)) return add_not_finite(text, value);
    double size = fabs(value);
    int unit = 0;
    // 999.5 has four digits once it is rounded to three.
    while (size >= 999.5 && unit < 4) {
        size /= 1000;
        unit++;
    }
    const int digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    CY_TRY(cy_number_fixed(text, value < 0 ? -size : size, digits));
    return cy_text_add(text, "%s", units[unit]);
}
