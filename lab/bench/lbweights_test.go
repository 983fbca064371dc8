package bench

import (
	"os"
	"testing"

	"fairlead.dev/lab/packet"
)

// Flows are within 2 % of the weights, but for chance: those of 1 among 100 backends have 13
// rows, of which one is 8 %.
func TestLBWeights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it loads a BPF program")
	}
	b, err := packet.New(100, 1<<17)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	list, err := lbWeights(b, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		t.Logf("%+v", w)
		if w.Weights == "100, 99, ... 1" {
			continue
		}
		if w.Rows > 1 || w.Largest > max(2, 4*w.Chance) {
			t.Errorf("%d backends of %s: rows are %.2f %% from the weights, flows %.2f %%, of which chance is %.2f", w.Backends, w.Weights, w.Rows, w.Largest, w.Chance)
		}
	}
}
