package openstack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lab "fairlead.dev/lab/openstack"
)

// readPools reads a page of pools and says how much of it was read.
func readPools(text string) (entries int, read int64, _ error) {
	from := strings.NewReader(text)
	p := pageReader[pool]{key: "pools"}
	err := p.read(newStream(from))
	return len(p.entries), from.Size() - int64(from.Len()), err
}

func repeat(entry string, n int) string {
	return strings.TrimSuffix(strings.Repeat(entry+",", n), ",")
}

// A page ends with its first bad entry: it is not kept whole before.
func TestBadPages(t *testing.T) {
	const id = "0123456789012345678901234567890123456789012345678901234567890123"
	for _, c := range []struct {
		name, page string
		entries    int
		read       int64 // at most
		want       string
	}{
		{"a million empty entries", `{"pools":[` + repeat(`{}`, 1<<20) + `]}`, 0, 4 << 10, "entry 0 of pools has no id"},
		{"too many entries", `{"pools":[` + repeat(`{"id":"a"}`, 1<<20) + `]}`, pageEntries, 1 << 20, "pools has more than 10000 entries"},
		{"an entry without end", `{"pools":[{"id":"a","members":[` + repeat(`{"id":"m"}`, 1<<20) + `]}]}`, 0, 5 << 20, "a part of the answer is larger than 4 MiB"},
		{"a text without end", `{"other":"` + strings.Repeat("x", 16<<20) + `"}`, 0, 5 << 20, "a part of the answer is larger than 4 MiB"},
		{"an empty reference", `{"pools":[{"id":"a","members":[{}]}]}`, 0, 1 << 10, "entry 0 of pools has a reference without an id"},
		{"the longest ID", `{"pools":[{"id":"` + id + `"}]}`, 1, 1 << 10, ""},
		{"a longer ID", `{"pools":[{"id":"a"},{"id":"` + id + `4"}]}`, 1, 1 << 10, "entry 1 of pools has an id of more than 64 bytes"},
		{"a longer reference", `{"pools":[{"id":"a","listeners":[{"id":"` + id + `4"}]}]}`, 0, 1 << 10, "entry 0 of pools has an id of more than 64 bytes"},
		{"an ID of two lines", `{"pools":[{"id":"a\nb"}]}`, 0, 1 << 10, `entry 0 of pools has the id "a\nb", which cannot be part of a path`},
		{"an ID with a slash", `{"pools":[{"id":"a/b"}]}`, 0, 1 << 10, `entry 0 of pools has the id "a/b", which cannot be part of a path`},
		{"no list", `{"pools":{}}`, 0, 1 << 10, "pools is no list"},
		{"two lists", `{"pools":[],"pools":[]}`, 0, 1 << 10, "the answer has pools twice"},
		{"no object", `[]`, 0, 1 << 10, "the answer is no JSON object"},
		{"half a list", `{"pools":[{"id":"a"},`, 1, 1 << 10, "unexpected EOF"},
		{"half an object", `{"pools":[{"id":"a"}]`, 1, 1 << 10, "unexpected EOF"},
		{"a long marker", `{"pools":[],"pools_links":[{"rel":"next","href":"/?marker=` + strings.Repeat("m", 300) + `"}]}`, 0, 1 << 10, "the link to the next page has no marker"},
		{"other parts", `{"other":[{"a":[1,{"b":null}]},"]"],"pools":[{"id":"a"}],"more":{}}`, 1, 1 << 10, ""},
	} {
		entries, read, err := readPools(c.page)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if entries != c.entries || read > c.read || text != c.want {
			t.Errorf("%s: %d entries of %d bytes, %q; want %d of at most %d, %q", c.name, entries, read, text, c.entries, c.read, c.want)
		}
	}
}

// Names are cut, and tags that no cloud has are left out.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("ü", 1<<19)
	lb := loadBalancer{ID: "lb", Name: long, ProvisioningStatus: long, UpdatedAt: long, Tags: []string{long, "short"}}
	for range 1000 {
		lb.Tags = append(lb.Tags, "more")
	}
	m := member{ID: "m", Address: strings.Repeat("1", 1000)}
	if err := trim(&lb); err != nil {
		t.Fatal(err)
	}
	if err := trim(&m); err != nil {
		t.Fatal(err)
	}
	if lb.Name != strings.Repeat("ü", 127) || len(lb.ProvisioningStatus) != 64 || len(lb.UpdatedAt) != 64 ||
		len(lb.Tags) != 256 || cap(lb.Tags) != 256 || lb.Tags[0] != "short" || len(m.Address) != 64 {
		t.Errorf("a name of %d bytes, a status of %d, %d tags, an address of %d", len(lb.Name), len(lb.ProvisioningStatus), len(lb.Tags), len(m.Address))
	}
}

// The pages of a list are bounded together, as one answer is.
func TestListWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		sim.Seed("team01", 3, 1)
		n := 0
		sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/lbaas/loadbalancers") || r.URL.Query().Get("limit") != "1000" {
				return false
			}
			n++
			_, _ = fmt.Fprintf(w, `{"loadbalancers":[{"id":"x%d","name":"%s"}],"loadbalancers_links":[{"rel":"next","href":"/?marker=x%d"}]}`, n, strings.Repeat("n", 1<<19), n)
			return true
		})
		s := start(t, sim, adminCloud, func(c *Config) { c.AnswerBytes = 1 << 20 })
		time.Sleep(700 * time.Millisecond) // the first retry is later
		synctest.Wait()
		const want = "BadAnswer: GET loadbalancers: the pages of the list are larger than 1 MiB (spec.limits.answerMiB)"
		if contact, _, _ := s.state(); contact != want || n != 2 {
			t.Errorf("after %d pages of half a MiB: %s, want %s", n, contact, want)
		}
	})
}
