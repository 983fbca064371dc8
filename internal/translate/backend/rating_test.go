package backend

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// annotated is an EndpointSlice with weights and backups.
func annotated(weights, backups string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "app-1", Annotations: map[string]string{
		v1alpha1.AnnotationWeights: weights, v1alpha1.AnnotationBackups: backups,
	}}}
}

func TestRatings(t *testing.T) {
	const weights, backups = "EndpointSlice app-1: metadata.annotations[fairlead.dev/weights]: ", "EndpointSlice app-1: metadata.annotations[fairlead.dev/backups]: "
	for _, c := range []struct{ weights, backups, want, problem string }{
		{"", "", "nothing", ""},
		{"10.0.0.1=5,10.0.0.2=3", "", "10.0.0.1=5 10.0.0.2=3", ""},
		{" 10.0.0.1 = 5 ,, 2001:db8::1=0 ", " 2001:DB8:0::1 ,10.0.0.1,", "10.0.0.1=5 2001:db8::1=0 +10.0.0.1 +2001:db8::1", ""},
		{"10.0.0.1=65535", "", "10.0.0.1=65535", ""},
		{"10.0.0.1=5,10.0.0.1=5", "10.0.0.1,10.0.0.1", "10.0.0.1=5 +10.0.0.1", ""},
		{",", "", "", ""},
		{"10.0.0.1=65536", "", "", weights + `the weight "65536" of 10.0.0.1 is not a number from 0 to 65535; the entry is ignored`},
		{"10.0.0.1=-1,10.0.0.2=2", "", "10.0.0.2=2", weights + `the weight "-1" of 10.0.0.1 is not a number from 0 to 65535; the entry is ignored`},
		{"10.0.0.1=99999999999999999999", "", "", weights + `the weight "99999999999999999999" of 10.0.0.1 is not a number from 0 to 65535; the entry is ignored`},
		{"10.0.0.1=1.5", "", "", weights + `the weight "1.5" of 10.0.0.1 is not a number from 0 to 65535; the entry is ignored`},
		{"10.0.0.1=", "", "", weights + `the weight "" of 10.0.0.1 is not a number from 0 to 65535; the entry is ignored`},
		{"10.0.0.1", "", "", weights + `"10.0.0.1" is not ADDRESS=WEIGHT, such as 10.0.0.1=5; the entry is ignored`},
		{"10.0.0.1=5,10.0.0.1=6", "", "10.0.0.1=5", weights + `10.0.0.1 has weight 5 already; the entry is ignored`},
		{"10.0.0.1:80=5", "", "", weights + `"10.0.0.1:80" is not an IP address; the entry is ignored`},
		{"::ffff:10.0.0.1=5", "", "", weights + `::ffff:10.0.0.1 is an IPv4 address: write 10.0.0.1; the entry is ignored`},
		{"", "fe80::1%eth0", "", backups + `"fe80::1%eth0" is not an IP address; the entry is ignored`},
		{"", "10.0.0.1=5 , 10.0.0.2", "+10.0.0.2", backups + `"10.0.0.1=5" is not an IP address; the entry is ignored`},
		{"x=1", "z", "", weights + `"x" is not an IP address; the entry is ignored, and so is another`},
		{"x=1,10.0.0.1=2,y=3", "z", "10.0.0.1=2", weights + `"x" is not an IP address; the entry is ignored, and so are 2 more`},
		{strings.Repeat("\x00", 300), "", "", weights + `"` + strings.Repeat(`\x00`, 50)},
	} {
		r, problem := ratingsOf(annotated(c.weights, c.backups))
		got := "nothing"
		if r != nil {
			var words []string
			for _, a := range slices.SortedFunc(maps.Keys(r.weights), netip.Addr.Compare) {
				words = append(words, fmt.Sprintf("%s=%d", a, r.weights[a]))
			}
			for _, a := range slices.SortedFunc(maps.Keys(r.backups), netip.Addr.Compare) {
				words = append(words, "+"+a.String())
			}
			got = strings.Join(words, " ")
		}
		if got != c.want || problem != c.problem && (len(c.problem) < 200 || !strings.HasPrefix(problem, c.problem)) {
			t.Errorf("%q and %q: %s, %q; want %s, %q", c.weights, c.backups, got, problem, c.want, c.problem)
		}
	}
}

// TestMisreadAnnotationsAreCounted holds that a Service tells of one of its EndpointSlices, in whatever order
// they come, and at every port.
func TestMisreadAnnotationsAreCounted(t *testing.T) {
	for _, c := range []struct {
		slices []string
		want   string
	}{
		{nil, ""},
		{[]string{"b"}, "b is bad"},
		{[]string{"c", "b"}, "b is bad; another EndpointSlice has such entries too"},
		{[]string{"b", "c", "a"}, "a is bad; 2 other EndpointSlices have such entries too"},
	} {
		var list memo.Parts[snapshot.Name, peculiarities]
		list.Set(snapshot.Name{Name: "0"}, peculiarities{suspects: []netip.AddrPort{{}}})
		for _, name := range c.slices {
			list.Set(snapshot.Name{Name: name}, peculiarities{misread: name + " is bad"})
		}
		f := &Service{Ports: make([]Port, 2)}
		if f.addMisread(list); f.Misread != c.want || f.Ports[0].Misread != c.want || f.Ports[1].Misread != c.want {
			t.Errorf("%v: %q, want %q", c.slices, f.Misread, c.want)
		}
	}
}

// TestOneOfTwoRatings holds that of two endpoints with one address the same counts in every order, and that one
// without annotations is as it was.
func TestOneOfTwoRatings(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.1:80")
	better := []model.Backend{
		{Address: at, Weight: 3, Zone: "b"},
		{Address: at, Weight: 2, Zone: "a"},
		{Address: at, Zone: "a"},
		{Address: at, Weight: 9, Backup: true},
		{Address: at, Weight: 9, State: model.BackendDraining},
	}
	for i, a := range better {
		for j, b := range better {
			if got := compareRated(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%+v to %+v: %d", a, b, got)
			}
		}
	}
	var nobody *ratings
	b := model.Backend{Address: at}
	if nobody.rate(&b); b != (model.Backend{Address: at}) {
		t.Errorf("%+v", b)
	}
}
