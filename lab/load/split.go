package load

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// DefaultSigmas is how far a share may be from its weight before it counts as
// wrong. A right share is further away once in 16,000 times.
const DefaultSigmas = 4

// Share is how much one name got of what its weight asks for.
type Share struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	// Want and Got are the shares as fractions of 1, Count the requests.
	Want  float64 `json:"want"`
	Got   float64 `json:"got"`
	Count int     `json:"count"`
	// Sigmas is the distance of Count from what Want asks for, in standard
	// deviations of a binomial distribution.
	Sigmas float64 `json:"sigmas"`
	OK     bool    `json:"ok"`
}

// Split compares counted answers with weights. A share is right if it is at most
// sigmas standard deviations, sqrt(n*p*(1-p)) each, away from its weight; with
// p 0 or 1 it must be exact. A name without a weight is wrong. The shares come in
// the order of their names.
func Split(answers map[string]int, weights map[string]float64, sigmas float64) []Share {
	var n int
	var sum float64
	for _, count := range answers {
		n += count
	}
	names := map[string]bool{}
	for name, w := range weights {
		sum += w
		names[name] = true
	}
	for name := range answers {
		names[name] = true
	}
	shares := make([]Share, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, known := weights[name]
		s := Share{Name: name, Weight: weights[name], Count: answers[name]}
		if sum > 0 {
			s.Want = s.Weight / sum
		}
		if n > 0 {
			s.Got = float64(s.Count) / float64(n)
		}
		away := float64(s.Count) - float64(n)*s.Want
		if deviation := math.Sqrt(float64(n) * s.Want * (1 - s.Want)); deviation > 0 {
			s.Sigmas = away / deviation
			s.OK = math.Abs(s.Sigmas) <= sigmas
		} else {
			s.OK = away == 0
		}
		s.OK = s.OK && known && n > 0
		shares = append(shares, s)
	}
	return shares
}

// Wrong says which shares are wrong, or nothing.
func Wrong(shares []Share) string {
	var wrong []string
	for _, s := range shares {
		if !s.OK {
			wrong = append(wrong, fmt.Sprintf("%s got %.2f %% of the requests, its weight asks for %.2f %% (%+.1f sigma)", s.Name, 100*s.Got, 100*s.Want, s.Sigmas))
		}
	}
	return strings.Join(wrong, "; ")
}
