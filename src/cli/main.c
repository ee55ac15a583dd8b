#include <cyclotron/status.h>

#include <stdio.h>

int main(void)
{
    printf("%s\n", cy_status_name(CY_OK));
    return 0;
}
