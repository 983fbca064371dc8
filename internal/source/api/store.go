package apisource

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/internal/snapshot"
)

// identity tells apart two states of one name.
type identity struct {
	uid     types.UID
	version string
	faulty  bool // values that do not fit were left out
}

// store is where a reflector puts the objects of one kind. It keeps their
// identities only; the objects go on.
type store struct {
	resource snapshot.Resource
	queue    *queue
	// passwords is the namespace of the Secrets whose passwords are kept.
	passwords string
	// pruned is told when values of an object come to be left out, and not of its further states; nil is nobody.
	pruned func(snapshot.Name, string)
	// confirmEmpty asks the API again, past every cache, whether there is none left.
	confirmEmpty func() (bool, error)
	// mark begins the annotation of objects that cannot be read, and noteUnreadable is told of them.
	mark           string
	noteUnreadable func(k snapshot.Key, why string)

	mu    sync.Mutex
	known map[snapshot.Name]identity
	// those that could not be read
	unreadable map[snapshot.Name]bool
}

func newStore(r snapshot.Resource, q *queue, passwords string, confirmEmpty func() (bool, error)) *store {
	return &store{resource: r, queue: q, passwords: passwords, confirmEmpty: confirmEmpty, known: map[snapshot.Name]identity{}, unreadable: map[snapshot.Name]bool{}, noteUnreadable: func(snapshot.Key, string) {}}
}

// Add is called for objects that a watch names.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update is called for objects that a watch names.
func (s *store) Update(obj any) error {
	object, name, err := s.accept(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUnreadable(object, name) {
		return nil
	}
	if c, ok := s.note(object, name); ok {
		s.queue.put(c)
	}
	return nil
}

// isUnreadable says that an object could not be read, and tells who wants to know.
func (s *store) isUnreadable(object snapshot.Object, name snapshot.Name) bool {
	why, is := strings.CutPrefix(object.GetAnnotations()[unreadableAnnotation], s.mark)
	if !is || s.mark == "" {
		s.forgive(name)
		return false
	}
	s.unreadable[name] = true
	s.noteUnreadable(snapshot.Key{Kind: s.resource.Kind, Name: name}, why)
	return true
}

// forgive notes that an object can be read, or is gone.
func (s *store) forgive(name snapshot.Name) {
	if s.unreadable[name] {
		delete(s.unreadable, name)
		s.noteUnreadable(snapshot.Key{Kind: s.resource.Kind, Name: name}, "")
	}
}

// Delete is called for objects that a watch says are gone.
func (s *store) Delete(obj any) error {
	_, name, err := s.accept(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgive(name)
	if _, ok := s.known[name]; ok {
		delete(s.known, name)
		s.queue.put(snapshot.Change{Key: snapshot.Key{Kind: s.resource.Kind, Name: name}})
	}
	return nil
}

// Replace is called with a complete list, at the start and when a watch could not
// be resumed. Only the differences go on.
func (s *store) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(list) == 0 && len(s.known) > 0 {
		empty, err := s.confirmEmpty()
		if err != nil {
			return fmt.Errorf("confirm that the last of %d objects of kind %s is gone: %w", len(s.known), s.resource.Kind, err)
		}
		if !empty {
			return fmt.Errorf("a list of kind %s was empty and the next was not", s.resource.Kind)
		}
	}
	var changes []snapshot.Change
	listed := make(map[snapshot.Name]bool, len(list))
	for _, obj := range list {
		object, name, err := s.accept(obj)
		if err != nil {
			return err
		}
		listed[name] = true
		if s.isUnreadable(object, name) {
			continue
		}
		if c, ok := s.note(object, name); ok {
			changes = append(changes, c)
		}
	}
	for name := range s.unreadable {
		if !listed[name] {
			s.forgive(name)
		}
	}
	for name := range s.known {
		if !listed[name] {
			delete(s.known, name)
			changes = append(changes, snapshot.Change{Key: snapshot.Key{Kind: s.resource.Kind, Name: name}})
		}
	}
	s.queue.put(changes...)
	s.queue.listed(s.resource.Kind)
	return nil
}

// Resync has nothing to do: nothing is emitted twice.
func (s *store) Resync() error { return nil }

// note remembers the object and says whether it is news.
func (s *store) note(object snapshot.Object, name snapshot.Name) (snapshot.Change, bool) {
	text := object.GetAnnotations()[snapshot.Unreadable]
	id, before := identity{object.GetUID(), object.GetResourceVersion(), text != ""}, s.known[name]
	if id.version != "" && before == id {
		return snapshot.Change{}, false
	}
	s.known[name] = id
	if id.faulty && !before.faulty && s.pruned != nil {
		s.pruned(name, text)
	}
	return snapshot.Change{Key: snapshot.Key{Kind: s.resource.Kind, Name: name}, Object: object}, true
}

// accept drops from the object what nobody reads and much memory holds.
func (s *store) accept(obj any) (snapshot.Object, snapshot.Name, error) {
	object, ok := obj.(snapshot.Object)
	if !ok {
		return nil, snapshot.Name{}, fmt.Errorf("a watch sent a %T", obj)
	}
	object = s.resource.Trim(object, s.passwords)
	object.SetManagedFields(nil)
	if a := object.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
		delete(a, corev1.LastAppliedConfigAnnotation)
		object.SetAnnotations(a)
	}
	return object, snapshot.Name{Namespace: object.GetNamespace(), Name: object.GetName()}, nil
}
