package xdp

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
	found := regexp.MustCompile(`REASON\(([A-Z_0-9]+), "([^"]*)"\)`).FindAllStringSubmatch(read("lib/reason.h"), -1)
	if len(found) != len(reasons) || len(reasons) < int(bpfReasonREASON_COUNT) {
		t.Fatalf("reason.h has %d reasons, its generated form %d, reason.go %d", len(found), bpfReasonREASON_COUNT, len(reasons))
	}
	for i, r := range found {
		if reasons[i] != r[2] {
			t.Errorf("reason %d is %q in reason.h, %q in reason.go", i, r[2], reasons[i])
		}
	}
	header := read("lib/layout.h") + read("lb/layout.h")
	for name, want := range map[string]int{
		"LAYOUT": layout, "ROW_BITS": rowBits, "GENEVE_PORT": genevePort, "HOP_CLASS": hopClass, "HOP_TYPE": hopType, "HOPS": 3,
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
	page, err := os.ReadFile("../../../../docs/reference/dataplane.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if !strings.Contains(string(page), "\n| `"+r+"` | ") {
			t.Errorf("docs/reference/dataplane.md does not say what %s is", r)
		}
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(r) || strings.Contains(r, "none") {
			t.Errorf("%q is no name of a reason", r)
		}
	}
}
