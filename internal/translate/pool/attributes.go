package pool

import (
	"math"
	"strconv"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// MakePath reads what is added to an advertisement. What cannot be read is left out
// and told to fail, with the field's path.
func MakePath(o v1alpha1.PathAttributes, path string, fail func(path, problem string)) model.PathOptions {
	var out model.PathOptions
	for i, text := range o.Communities {
		if problem := communityProblem(text); problem != "" {
			fail(field.At(path+"communities", i), problem)
			continue
		}
		out.Communities = append(out.Communities, text)
	}
	number := func(v *int64, name string) *uint32 {
		if v == nil {
			return nil
		}
		if *v < 0 || *v > math.MaxUint32 {
			fail(path+name, strconv.FormatInt(*v, 10)+" must be in the range 0-4294967295")
			return nil
		}
		n := uint32(*v)
		return &n
	}
	out.LocalPreference = number(o.LocalPreference, "localPreference")
	out.MED = number(o.MED, "med")
	if o.Prepend < 0 || o.Prepend > prependLimit {
		fail(path+"prepend", strconv.Itoa(int(o.Prepend))+" must be in the range 0-"+strconv.Itoa(prependLimit))
	} else {
		out.Prepend = uint8(o.Prepend)
	}
	return out
}

// prependLimit bounds how often an AS is put in front: routers refuse paths that are
// much longer.
const prependLimit = 16

// communityProblem says why a text is no community, or nothing.
func communityProblem(text string) string {
	switch text {
	case "no-export", "no-advertise", "graceful-shutdown", "blackhole":
		return ""
	}
	parts := strings.Split(text, ":")
	size := map[int]int{2: 16, 3: 32}[len(parts)]
	if size == 0 {
		return field.Quote(text) + ` is no community: want "65000:100", "65000:1:2", or one of no-export, no-advertise, graceful-shutdown, blackhole`
	}
	for _, p := range parts {
		if n, err := strconv.ParseUint(p, 10, size); err != nil || strconv.FormatUint(n, 10) != p {
			return field.Quote(text) + ": " + field.Quote(p) + " must be a number in the range 0-" + strconv.FormatUint(1<<size-1, 10)
		}
	}
	return ""
}
