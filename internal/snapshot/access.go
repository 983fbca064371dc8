package snapshot

import (
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// access reaches the objects of one kind in a snapshot.
type access struct {
	object func() Object         // an empty one
	list   func() runtime.Object // an empty one
	begin  func(*Snapshot)       // with an empty map
	get    func(*Snapshot, Name) Object
	set    func(*Snapshot, Name, metav1.Object) bool // false: the object is of another kind
	remove func(*Snapshot, Name)
	names  func(*Snapshot) iter.Seq[Name]
}

// in is the access to the objects of a type in their map, and to the type of their lists.
func in[T, L any, P interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}](objects func(*Snapshot) *map[Name]P) access {
	return access{
		object: func() Object { return P(new(T)) },
		list:   func() runtime.Object { return PL(new(L)) },
		begin:  func(s *Snapshot) { *objects(s) = map[Name]P{} },
		get: func(s *Snapshot, n Name) Object {
			if o := (*objects(s))[n]; o != nil { // else the interface would not be nil
				return o
			}
			return nil
		},
		set: func(s *Snapshot, n Name, object metav1.Object) bool {
			o, is := object.(P)
			if is {
				(*objects(s))[n] = o
			}
			return is
		},
		remove: func(s *Snapshot, n Name) { delete(*objects(s), n) },
		names: func(s *Snapshot) iter.Seq[Name] {
			return func(yield func(Name) bool) {
				for n := range *objects(s) {
					if !yield(n) {
						return
					}
				}
			}
		},
	}
}

// field returns a field of an object of type P; nil: the object has another type.
func field[P Object, F any](of func(P) *F) func(Object) *F {
	return func(o Object) *F {
		if p, is := o.(P); is {
			return of(p)
		}
		return nil
	}
}

// trimmer trims objects of type P and leaves others as they are.
func trimmer[P Object](trim func(o P, passwords string) P) func(Object, string) Object {
	return func(o Object, passwords string) Object {
		if p, is := o.(P); is {
			return trim(p, passwords)
		}
		return o
	}
}
