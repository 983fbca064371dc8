package demo

import "testing"

func TestWaiting(t *testing.T) {
	for text, want := range map[string]float64{
		"some avg10=99.53 avg60=99.34 avg300=93.54 total=11132139562\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": 99.53,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n":                                                              0,
		"full avg10=7.00\n": 0,
		"":                  0,
		"some avg10=x":      0,
	} {
		if got := waiting(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
