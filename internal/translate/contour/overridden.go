package contour

import (
	"strconv"

	"fairlead.dev/internal/translate/field"
)

// InsecureNote says that permitInsecure of routes has no effect; empty where none has it.
func (f *IngressRoute) InsecureNote() string {
	if len(f.insecure) == 0 {
		return ""
	}
	others := ""
	switch n := len(f.insecure) - 1; {
	case n == 1:
		others = " (and of 1 other route)"
	case n > 1:
		others = " (and of " + strconv.Itoa(n) + " other routes)"
	}
	return field.At("spec.routes", f.insecure[0]) + ".permitInsecure" + others +
		": has no effect, since the plane has --disable-permit-insecure: requests in clear text are sent to https"
}
