/* Whether tools of sys.monitoring (PEP 669, since CPython 3.12) have to see the lines of the user's code.
 *
 * Debuggers and coverage tools do: they ask for lines, or for the start of functions, whose lines they then ask for. A profiler
 * that asks for calls and returns does not, as under sys.setprofile. sys.settrace and sys.setprofile use tools of the
 * interpreter's own; these are checked per thread, not here.
 */
#ifndef DYNAMO_LITE_MONITORING_H
#define DYNAMO_LITE_MONITORING_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#define PROFILING_TOOLS (1 << 2 | 1 << 5)               /* sys.monitoring.PROFILER_ID and OPTIMIZER_ID */
#define OTHER_TOOLS (1 << 0 | 1 << 1 | 1 << 3 | 1 << 4) /* DEBUGGER_ID, COVERAGE_ID, and the ids 3 and 4 for any use */
#define FIRST_LINE_EVENT PY_MONITORING_EVENT_LINE /* followed by INSTRUCTION, JUMP, and BRANCH or two kinds of branch */
#define N_LINE_EVENTS (PY_MONITORING_EVENT_STOP_ITERATION - FIRST_LINE_EVENT)

/* `tools` has a byte for each event, with a bit for each tool that asks for it. */
static inline int
tools_see_lines(const uint8_t *tools, size_t n_events)
{
    const uint64_t every_byte = UINT64_C(0x0101010101010101);
    uint64_t first, last = 0, lines = 0;
    memcpy(&first, tools, 8);
    memcpy(&last, tools + 8, n_events - 8);
    memcpy(&lines, tools + FIRST_LINE_EVENT, N_LINE_EVENTS);
    return (((first | last) & OTHER_TOOLS * every_byte) | (lines & PROFILING_TOOLS * every_byte)) != 0;
}

static inline int
tools_see_anything(const uint8_t *tools, size_t n_events)
{
    uint64_t first, last = 0;
    memcpy(&first, tools, 8);
    memcpy(&last, tools + 8, n_events - 8);
    return (first | last) != 0;
}

#define TOOLS_SEE_LINES(monitors) tools_see_lines((monitors).tools, sizeof((monitors).tools))
#define TOOLS_SEE_ANYTHING(monitors) tools_see_anything((monitors).tools, sizeof((monitors).tools))

#endif
