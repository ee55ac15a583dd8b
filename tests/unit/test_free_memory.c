// What the system can still give, read from made-up /proc and /sys.

#include "support/support.h"

#include "base/file.h"
#include "observe/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define MB ((size_t)1 << 20)

static char root[256]; // of the test that runs

static void start(void)
{
    cy_test_folder(root, sizeof(root));
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s%s", root, folder);
    CY_CHECK_OK(cy_folder_make(path));
    snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    CY_CHECK_OK(cy_file_write(path, text, strlen(text)));
}

static void put_meminfo(void)
{
    put("/proc", "meminfo",
        "MemTotal:        8388608 kB\nMemFree:          102400 kB\nMemAvailable:    4194304 kB\n"
        "SwapCached:            0 kB\nSwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n");
}

static void expect_bytes(size_t bytes)
{
    const cy_free_memory memory = cy_free_memory_read(root);
    assert_int_equal(memory.bytes, bytes);
}

static void the_machine_alone(void **state)
{
    (void)state;
    start();
    put_meminfo();
    const cy_free_memory memory = cy_free_memory_read(root);
    assert_int_equal(memory.total_bytes, 8192 * MB);
    assert_int_equal(memory.available_bytes, 4096 * MB);
    assert_int_equal(memory.bytes, 5120 * MB); // with what may go to the swap
    assert_int_equal(memory.group, 0);
}

// One field of /proc/self/status for each limit, and the lesser of what both leave.
static void what_a_process_may_map(void **state)
{
    (void)state;
    struct rlimit addresses, data;
    start();
    assert_int_equal(getrlimit(RLIMIT_AS, &addresses), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &data), 0);
    put("/proc/self", "status", "Name:\tx\nVmSize:\t  10240 kB\nVmData:\t    4096 kB\n");
    if (addresses.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY)
        assert_int_equal(cy_address_room_read(root).bytes, SIZE_MAX);
    const struct {
        rlim_t addresses, data;
        size_t left;
        const char *limit;
    } cases[] = {
        {16384 * MB, RLIM_INFINITY, 16374 * MB, "ulimit -v"},
        {16384 * MB, 16385 * MB, 16374 * MB, "ulimit -v"},
        {16384 * MB, 16370 * MB, 16366 * MB, "ulimit -d"},
        {RLIM_INFINITY, 16384 * MB, 16380 * MB, "ulimit -d"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rlimit set = addresses;
        set.rlim_cur = cases[i].addresses;
        if (setrlimit(RLIMIT_AS, &set) != 0) continue; // under a limit of this machine
        set = data;
        set.rlim_cur = cases[i].data;
        if (setrlimit(RLIMIT_DATA, &set) != 0) continue;
        const cy_address_room room = cy_address_room_read(root);
        assert_int_equal(room.bytes, cases[i].left);
        assert_string_equal(room.limit, cases[i].limit);
    }
    assert_int_equal(setrlimit(RLIMIT_AS, &addresses), 0);
    assert_int_equal(setrlimit(RLIMIT_DATA, &data), 0);
}

static void what_is_not_told_refuses_nothing(void **state)
{
    (void)state;
    start();
    expect_bytes(SIZE_MAX); // no /proc at all
    put("/proc", "meminfo", "MemTotal:        8388608 kB\nMemFree:  1 kB\n");
    expect_bytes(SIZE_MAX); // Linux before 3.14
    put("/proc", "meminfo", "MemAvailable: much\n");
    expect_bytes(SIZE_MAX);
    put("/proc", "meminfo", "");
    put("/proc/self", "cgroup", "nonsense\n0:\n\n:::\n");
    expect_bytes(SIZE_MAX);
}

static void a_group_of_version_2(void **state)
{
    (void)state;
    static const char group[] = "/sys/fs/cgroup/job/step";
    start();
    put_meminfo();
    put("/proc/self", "cgroup", "0::/job/step\n");
    expect_bytes(5120 * MB); // no files
    put(group, "memory.max", "max\n");
    put(group, "memory.current", "1048576\n");
    expect_bytes(5120 * MB); // no limit
    put(group, "memory.max", "1073741824\n");
    expect_bytes((1024 - 1 + 1024) * MB); // what is left of it, and the swap
    const cy_free_memory memory = cy_free_memory_read(root);
    assert_int_equal(memory.available_bytes, 4096 * MB);
    assert_int_not_equal(memory.group, 0);

    // Files in memory can go, and are no more than what is used.
    put(group, "memory.current", "536870912\n");
    put(group, "memory.stat", "anon 5\ninactive_file 104857600\nactive_file 209715200\n");
    expect_bytes((1024 - 512 + 300 + 1024) * MB);
    put(group, "memory.stat", "inactive_file 1048576000\nactive_file 0\n");
    expect_bytes((1024 + 1024) * MB);
    put(group, "memory.current", "2147483648\n");
    put(group, "memory.stat", "anon 5\n");
    expect_bytes(1024 * MB); // more used than allowed
    put(group, "memory.max", "999999999999999\n");
    expect_bytes(5120 * MB); // the machine has less
}

static void the_limit_of_a_group_above_holds(void **state)
{
    (void)state;
    start();
    put_meminfo();
    put("/proc/self", "cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step", "memory.max", "1073741824\n");
    put("/sys/fs/cgroup/job/step", "memory.current", "0\n");
    const uint64_t inner = cy_free_memory_read(root).group;
    put("/sys/fs/cgroup/job", "memory.max", "536870912\n");
    put("/sys/fs/cgroup/job", "memory.current", "0\n");
    const cy_free_memory memory = cy_free_memory_read(root);
    assert_int_equal(memory.bytes, (512 + 1024) * MB);
    assert_int_not_equal(memory.group, inner);
    // Of the whole path only the top may be seen, as in a container.
    put("/proc/self", "cgroup", "0::/host/container\n");
    put("/sys/fs/cgroup", "memory.max", "268435456\n");
    put("/sys/fs/cgroup", "memory.current", "0\n");
    expect_bytes((256 + 1024) * MB);
    put("/proc/self", "cgroup", "0::/\n");
    expect_bytes((256 + 1024) * MB);
}

static void a_group_of_version_1(void **state)
{
    (void)state;
    static const char group[] = "/sys/fs/cgroup/memory/job";
    start();
    put_meminfo();
    put("/proc/self", "cgroup", "9:name=systemd:/a\n4:hugetlb,memory:/job\n1:cpu:/b\n0::/\n");
    put(group, "memory.limit_in_bytes", "9223372036854771712\n"); // none
    put(group, "memory.usage_in_bytes", "536870912\n");
    expect_bytes(5120 * MB);
    put(group, "memory.limit_in_bytes", "1073741824\n");
    put(group, "memory.stat",
        "inactive_file 1\ntotal_inactive_file 104857600\ntotal_active_file 0\n");
    expect_bytes((1024 - 512 + 100 + 1024) * MB);
    put("/proc/self", "cgroup", "4:memoryless,mem:/job\n");
    expect_bytes(5120 * MB);
}

static void a_group_where_the_machine_says_nothing(void **state)
{
    (void)state;
    start();
    put("/proc/self", "cgroup", "0::/job");
    put("/sys/fs/cgroup/job", "memory.max", "1073741824");
    put("/sys/fs/cgroup/job", "memory.current", "0");
    expect_bytes(1024 * MB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_alone),
        cmocka_unit_test(what_a_process_may_map),
        cmocka_unit_test(what_is_not_told_refuses_nothing),
        cmocka_unit_test(a_group_of_version_2),
        cmocka_unit_test(the_limit_of_a_group_above_holds),
        cmocka_unit_test(a_group_of_version_1),
        cmocka_unit_test(a_group_where_the_machine_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
