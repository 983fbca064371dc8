package plane

import "fairlead.dev/internal/catalog"

// toldUnfit is how many resources that cannot be sent one publication logs; the status names all.
const toldUnfit = 16

// tellUnfit logs what cannot be sent that could be before.
func (l *loop) tellUnfit(before map[catalog.Key]string) {
	told, more := 0, 0
	for k, why := range l.catalog.AllUnfit() {
		switch {
		case before[k] != "":
		case told == toldUnfit:
			more++
		default:
			told++
			l.plane.config.Log.Error("a resource cannot be sent; machines keep the version that they have, or get one that answers 503 for a host", "type", catalog.ShortType(k.Type), "name", k.Name, "reason", why)
		}
	}
	if more > 0 {
		l.plane.config.Log.Error("more resources cannot be sent; the status names them", "count", more)
	}
}
