package tap

import (
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// Matches says whether a record is one of those that a filter selects. owner is the resource that owns the route of the
// record: its kind, namespace and name.
func Matches(f model.TapFilter, r *model.TapRecord, owner func(route string) (kind, namespace, name string)) bool {
	if f.Kind != "" || f.Namespace != "" || f.Name != "" {
		kind, namespace, name := owner(r.Route)
		if f.Kind != "" && !strings.EqualFold(f.Kind, kind) || f.Namespace != "" && f.Namespace != namespace || f.Name != "" && f.Name != name {
			return false
		}
	}
	switch {
	case f.Host != "" && !isHost(f.Host, r.Host), !strings.HasPrefix(r.Path, f.Path):
		return false
	case f.StatusTo > 0 && (r.Status < f.StatusFrom || r.Status > f.StatusTo):
		return false
	case r.Seconds < f.SlowerThan.Seconds():
		return false
	case f.Header != "" && !has(f, r.Headers) && !has(f, r.ResponseHeaders):
		return false
	}
	return true
}

func has(f model.TapFilter, headers map[string]string) bool {
	value, is := headers[f.Header]
	return is && (f.Value == "" || f.Value == value)
}

// isHost says whether a client asked for a host. What it asked for may have a port.
func isHost(pattern, asked string) bool {
	if i := strings.LastIndexByte(asked, ':'); i >= 0 && !strings.Contains(asked[i:], "]") {
		asked = asked[:i]
	}
	asked, pattern = strings.ToLower(strings.TrimSuffix(asked, ".")), strings.ToLower(pattern)
	if below, is := strings.CutPrefix(pattern, "*."); is {
		return strings.HasSuffix(asked, "."+below)
	}
	return asked == pattern
}

// Bound is how many records are let through: a bucket that holds those of one second.
type Bound struct {
	rate   float64 // a second
	left   float64
	filled time.Time
}

// NewBound returns a full one.
func NewBound(rate int, now time.Time) *Bound {
	return &Bound{rate: float64(rate), left: float64(rate), filled: now}
}

// Allow says whether there is room for one more. It takes none.
func (b *Bound) Allow(now time.Time) bool {
	if passed := now.Sub(b.filled); passed > 0 {
		b.left, b.filled = min(b.rate, b.left+passed.Seconds()*b.rate), now
	}
	return b.left >= 1
}

// Take takes the room for one.
func (b *Bound) Take() { b.left-- }
