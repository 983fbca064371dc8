package bench

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestRSSIsWhatTheProcessTakes(t *testing.T) {
	before, err := rss(os.Getpid())
	if err != nil || before <= 0 {
		t.Fatalf("memory of this process: %v MB (%v)", before, err)
	}
	const more = 64
	block := make([]byte, more<<20)
	for i := range block {
		block[i] = byte(i)
	}
	after, err := rss(os.Getpid())
	if err != nil || after < before+more*3/4 {
		t.Errorf("memory with %d MB more: %v MB, before %v (%v)", more, after, before, err)
	}
	if block[len(block)-1] != byte(len(block)-1) {
		t.Error("the block is not what was written")
	}
	if _, err := rss(1 << 30); err == nil {
		t.Error("a process that is not there has memory")
	}
}

func TestSettledGivesUpInTheEnd(t *testing.T) {
	clock := time.Unix(0, 0)
	s := &starting{StartOptions: StartOptions{Now: func() time.Time { clock = clock.Add(settleLimit); return clock }}}
	if mb, err := settled(t.Context(), s.Now, os.Getpid()); err != nil || mb <= 0 {
		t.Errorf("settled at %v MB (%v)", mb, err)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{5.00049}, 5}, {[]float64{4, 1, 2, 3}, 3}} {
		in := fmt.Sprint(c.in)
		if got := middle(c.in); got != c.want || fmt.Sprint(c.in) != in {
			t.Errorf("middle of %s is %v, want %v; the input became %v", in, got, c.want, c.in)
		}
	}
}
