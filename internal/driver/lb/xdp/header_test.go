package xdp

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"fairlead.dev/internal/driver/bpf"
)

// What C says and Go repeats is the same.
func TestHeadersAgree(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile("../../../../bpf/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	header := read("lib/layout.h") + read("lb/layout.h")
	for name, want := range map[string]int{
		"LAYOUT": bpf.Layout, "ROW_BITS": rowBits, "GENEVE_PORT": genevePort, "HOP_CLASS": hopClass, "HOP_TYPE": hopType, "HOPS": 3,
	} {
		m := regexp.MustCompile(`(?m)^#define ` + name + ` (\S+)`).FindStringSubmatch(header)
		if m == nil {
			t.Errorf("no layout.h defines %s", name)
			continue
		}
		if got, err := strconv.ParseInt(m[1], 0, 32); err != nil || int(got) != want {
			t.Errorf("%s is %s in layout.h, %d here", name, m[1], want)
		}
	}
	m := regexp.MustCompile(`(?m)^const volatile __u32 udp_idle = (\d+);`).FindStringSubmatch(read("lb/flow.h"))
	if m == nil || m[1] != fmt.Sprint(udpIdle.Seconds()) {
		t.Errorf("udp_idle is %v in flow.h, %v here", m, udpIdle)
	}
}
