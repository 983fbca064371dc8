/* The shared maps without programs, from which Go's types of them are generated. Nobody loads
 * it. */
#include "maps.h"

const struct capture *export_capture __attribute__((unused));
const enum reason *export_reason __attribute__((unused));
const enum next_hop_flag *export_next_hop_flag __attribute__((unused));
