package backend

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/field"
)

// endpointWeightLimit is the largest weight of an endpoint. Times the largest in a LoadBalancerPolicy it is less
// than 1<<32.
const endpointWeightLimit = 65_535

// ratings are what annotations of an EndpointSlice say of its endpoints, by address. Nil says nothing.
type ratings struct {
	weights map[netip.Addr]uint32 // 0 drains
	backups map[netip.Addr]bool
}

// ratingsOf reads the annotations of an EndpointSlice. An entry that cannot be read is ignored; problem names the
// first of them and counts the others.
func ratingsOf(o *discoveryv1.EndpointSlice) (r *ratings, problem string) {
	weights, backups := o.Annotations[v1alpha1.AnnotationWeights], o.Annotations[v1alpha1.AnnotationBackups]
	if weights == "" && backups == "" {
		return nil, ""
	}
	r = &ratings{weights: map[netip.Addr]uint32{}, backups: map[netip.Addr]bool{}}
	faults := 0
	each := func(annotation, text string, read func(entry string) error) {
		for entry := range strings.SplitSeq(text, ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			if err := read(entry); err != nil {
				if faults++; faults == 1 {
					problem = "EndpointSlice " + o.Name + ": metadata.annotations[" + annotation + "]: " + err.Error() + "; the entry is ignored"
				}
			}
		}
	}
	each(v1alpha1.AnnotationWeights, weights, r.readWeight)
	each(v1alpha1.AnnotationBackups, backups, r.readBackup)
	switch {
	case faults == 2:
		problem += ", and so is another"
	case faults > 2:
		problem += fmt.Sprintf(", and so are %d more", faults-1)
	}
	return r, problem
}

// readWeight reads "10.0.0.1=5".
func (r *ratings) readWeight(entry string) error {
	name, text, found := strings.Cut(entry, "=")
	if !found {
		return fmt.Errorf("%s is not ADDRESS=WEIGHT, such as 10.0.0.1=5", field.Quote(entry))
	}
	a, err := address.ParsePlain(strings.TrimSpace(name))
	if err != nil {
		return err
	}
	weight, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || weight > endpointWeightLimit {
		return fmt.Errorf("the weight %s of %s is not a number from 0 to %d", field.Quote(strings.TrimSpace(text)), a, endpointWeightLimit)
	}
	if before, twice := r.weights[a]; twice && before != uint32(weight) {
		return fmt.Errorf("%s has weight %d already", a, before)
	}
	r.weights[a] = uint32(weight)
	return nil
}

// readBackup reads "10.0.0.9".
func (r *ratings) readBackup(entry string) error {
	a, err := address.ParsePlain(entry)
	if err == nil {
		r.backups[a] = true
	}
	return err
}

// rate gives a backend what is said of it.
func (r *ratings) rate(b *model.Backend) {
	if r == nil {
		return
	}
	a := b.Address.Addr()
	switch weight, said := r.weights[a]; {
	case said && weight == 0 && b.State == model.BackendReady:
		b.State = model.BackendDraining
	case weight > 1:
		b.Weight = weight
	}
	b.Backup = r.backups[a]
}

// addMisread adds to a Service what annotations of its EndpointSlices say that cannot be read: the first, by the
// names of the EndpointSlices, and in how many others there is more.
func (f *Service) addMisread(of memo.Parts[snapshot.Name, peculiarities]) {
	first, others := "", -1
	for slice, p := range of.All() {
		if p.misread == "" {
			continue
		}
		if others++; others == 0 || slice.Name < first {
			first, f.Misread = slice.Name, p.misread
		}
	}
	switch {
	case others == 1:
		f.Misread += "; another EndpointSlice has such entries too"
	case others > 1:
		f.Misread += fmt.Sprintf("; %d other EndpointSlices have such entries too", others)
	}
	for i := range f.Ports {
		f.Ports[i].Misread = f.Misread
	}
}
