package access

import (
	"context"
	"sync"
)

// fake is an API in memory.
type fake struct {
	mu          sync.Mutex
	authorities []byte
	tokens      map[string]User
	allowed     map[string][]Question // by the names of users; an empty name or namespace is any
	away        error
	hold        chan struct{} // answers wait until it is closed; nil: they do not
	stall       chan struct{} // the same for tokens that are nobody's
	asked       int
}

func (f *fake) begin() error {
	f.mu.Lock()
	f.asked++
	hold, away := f.hold, f.away
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return away
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fake) Authorities(context.Context) ([]byte, error) {
	err := f.begin()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.authorities, err
}

func (f *fake) Review(_ context.Context, token string) (User, bool, error) {
	err := f.begin()
	f.mu.Lock()
	defer f.mu.Unlock()
	u, known := f.tokens[token]
	if stall := f.stall; stall != nil && !known {
		f.mu.Unlock()
		<-stall
		f.mu.Lock()
	}
	return u, known && err == nil, err
}

func (f *fake) Allows(_ context.Context, u User, q Question) (bool, string, error) {
	if err := f.begin(); err != nil {
		return false, "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, may := range f.allowed[u.Name] {
		if may.Verb == q.Verb && may.Resource == q.Resource && (may.Namespace == "" || may.Namespace == q.Namespace) {
			return true, "", nil
		}
	}
	return false, "", nil
}
