// device/test_device.h: a device that proves on a CPU that no code takes it for one.
//
// Its memory is the host's, under addresses that are 2^52 too high: no process can follow them, so
// a direct access of the host faults at once. Each queue is a thread that takes its work in order,
// and before some of it sleeps for a random time of up to SLOWEST_US, a function of the seed. The
// host memory of a download holds 0xff bytes until the copy is done, which are a NaN in every
// floating dtype.
//
// Copies are checked against the memory that the device has allocated: one beyond it is a fault of
// the queue (CY_ERR_IO). An address outside of it that a kernel gets fails an assertion where the
// kernel is called.

#ifndef CY_DEVICE_TEST_DEVICE_H
#define CY_DEVICE_TEST_DEVICE_H

#include "device/device.h"

CY_MUST_CHECK cy_status cy_test_device_open(cy_device **device, uint64_t seed);

#endif
