package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

const (
	// sweepInterval is about how often everything is read anew, although nothing seems to be wrong.
	sweepInterval = time.Hour
	// watchTime is how long the API is asked to keep a watch open, at least; at most twice as long.
	watchTime = 5 * time.Minute
	// initialTime bounds how long the objects that a watch begins with may take.
	initialTime = 5 * time.Minute
	// steadyTime is after how long a watch is no failure any more, however it ends.
	steadyTime = 10 * time.Second
	// growth is how many times AnswerBytes of memory the objects of a list may take that watches have made longer.
	growth = 4
)

// decodingCause is how client-go marks an event that it could not read.
const decodingCause metav1.CauseType = "ClientWatchDecoding"

// stream is a watch that does not end with its connection: it goes on from the last version that it has seen. It ends
// with an error "expired" when everything is to be read anew.
type stream struct {
	f       *follower
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	out     chan watch.Event
	initial bool   // the events are the objects that there are; a failure ends the stream
	events  int64  // of the initial ones, so far
	from    string // the version that the initial objects were asked for
	rv      string // last seen
	newest  string // largest seen
	failed  int    // attempts in a row
	garbled bool   // the last watch has failed by what it sent: the next one must prove itself
}

// WatchWithContext opens a watch for a reflector.
func (f *follower) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s := &stream{
		f: f, done: make(chan struct{}), out: make(chan watch.Event),
		initial: o.SendInitialEvents != nil && *o.SendInitialEvents, from: o.ResourceVersion, rv: o.ResourceVersion, newest: o.ResourceVersion,
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if !s.initial {
		go s.run(nil, nil)
		return s, nil
	}
	w, record, err := s.begin(o)
	if err != nil {
		s.cancel()
		return nil, err
	}
	go s.run(w, record)
	return s, nil
}

// Watch is the form that reflectors of old call.
func (f *follower) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
}

// open opens one watch.
func (f *follower) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, *cloud.Record, error) {
	ctx, record := cloud.WithRecord(ctx)
	seconds := int64(cloud.Jitter(watchTime * 3 / 2).Seconds())
	o.Watch, o.AllowWatchBookmarks, o.TimeoutSeconds = true, true, &seconds
	w, err := f.get(o).Watch(ctx)
	if err != nil {
		return nil, record, err
	}
	if err := record.Err(); err != nil { // the client makes an empty watch of some errors
		w.Stop()
		return nil, record, err
	}
	return w, record, nil
}

// begin opens the watch that begins with the objects that there are.
func (s *stream) begin(o metav1.ListOptions) (watch.Interface, *cloud.Record, error) {
	if s.f.unstreamed {
		return nil, nil, errors.New("the API lists only in pages")
	}
	if err := s.f.check(s.ctx); err != nil {
		return nil, nil, s.refuse(err)
	}
	w, record, err := s.f.open(s.ctx, o)
	switch {
	case err == nil:
		return w, record, nil
	case stale(err) && s.from != "":
		return nil, nil, err // the reflector begins again
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err):
		return nil, nil, err // the API lists only in pages
	}
	return nil, nil, s.refuse(s.f.describe("watch", err, record))
}

// refuse notes why the initial objects cannot be read. A reflector would now ask for them in pages; it gets the same
// error there.
func (s *stream) refuse(err error) error {
	s.f.refused = s.f.note(s.ctx, err)
	return s.f.refused
}

// ResultChan has the events.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop ends the stream. It returns when nothing of it runs any more.
func (s *stream) Stop() {
	s.cancel()
	<-s.done
}

func (s *stream) run(w watch.Interface, record *cloud.Record) {
	defer close(s.done)
	defer close(s.out)
	defer s.cancel()
	sweep := time.NewTimer(cloud.Jitter(sweepInterval))
	defer sweep.Stop()
	initial := time.NewTimer(initialTime)
	defer initial.Stop()
	for {
		if w == nil {
			if w, record = s.reopen(); w == nil {
				return
			}
		}
		goOn := s.copy(w, record, sweep.C, initial.C)
		w.Stop()
		if !goOn {
			return
		}
		w = nil
	}
}

// reopen opens a watch, however long that takes. It gives none if the stream ends.
func (s *stream) reopen() (watch.Interface, *cloud.Record) {
	for s.ctx.Err() == nil {
		if s.failed > 0 {
			if !s.f.pause(s.ctx, s.failed) {
				return nil, nil
			}
			same, err := s.f.same(s.ctx, s.newest)
			if err != nil {
				s.fail(err)
				continue
			}
			if !same {
				s.expire()
				return nil, nil
			}
			s.f.doubted = false
		}
		w, record, err := s.f.open(s.ctx, metav1.ListOptions{ResourceVersion: s.rv})
		switch {
		case err == nil:
			if !s.garbled {
				_ = s.f.note(s.ctx, nil)
			}
			return w, record
		case stale(err):
			s.expire()
			return nil, nil
		}
		s.fail(s.f.describe("watch", err, record))
	}
	return nil, nil
}

func (s *stream) fail(err error) {
	s.failed++
	_ = s.f.note(s.ctx, err)
}

// copy passes on the events of one watch. It says whether the stream goes on.
func (s *stream) copy(w watch.Interface, record *cloud.Record, sweep, initial <-chan time.Time) bool {
	begin := time.Now()
	for {
		select {
		case <-s.ctx.Done():
			return false
		case <-initial:
			if s.initial {
				return s.broken(fmt.Errorf("watch %s: %w", s.f, cloud.Timeout("the list takes longer than %s", initialTime)))
			}
		case <-sweep:
			if !s.initial {
				s.expire()
				return false
			}
		case e, ok := <-w.ResultChan():
			if !ok {
				return s.ended(record, time.Since(begin))
			}
			if e.Type == watch.Error {
				return s.failure(e, record, time.Since(begin))
			}
			if goOn, next := s.pass(e, record); !next {
				return goOn
			}
		}
	}
}

// ended decides what follows after a watch that has ended without an error of the API.
func (s *stream) ended(record *cloud.Record, lasted time.Duration) bool {
	err := record.Err()
	if s.initial {
		if err == nil {
			err = cloud.BadAnswer("the list is not complete")
		}
		return s.broken(fmt.Errorf("watch %s: %w", s.f, err))
	}
	if lasted >= steadyTime {
		s.failed = 0
	}
	if err != nil || lasted < time.Second {
		s.failed++ // the API says more about it when it is asked again
		s.f.doubt()
	}
	return true
}

// failure decides what follows an error that was sent as an event.
func (s *stream) failure(e watch.Event, record *cloud.Record, lasted time.Duration) bool {
	err := apierrors.FromObject(e.Object)
	undecoded := apierrors.HasStatusCause(err, decodingCause)
	switch {
	case undecoded && record.Err() != nil:
		return s.ended(record, lasted) // there was no event: the connection broke
	case stale(err) && s.initial && s.from != "":
		s.send(e) // the reflector begins again
		return false
	case stale(err) && !s.initial:
		s.expire()
		return false
	case undecoded:
		err = cloud.BadAnswer("%w", err)
	}
	if err = s.f.describe("watch", err, record); s.initial {
		return s.broken(err)
	}
	s.garbled = true
	s.fail(err)
	return true
}

// pass passes on an event. If there is to be no next one of this watch, it says whether the stream goes on.
func (s *stream) pass(e watch.Event, record *cloud.Record) (goOn, next bool) {
	m, err := meta.Accessor(e.Object)
	s.events++
	switch {
	case err != nil || reflect.TypeOf(e.Object) != reflect.TypeOf(s.f.kind.object) || m.GetResourceVersion() == "":
		err = cloud.BadAnswer("watch %s: an event has no such object", s.f)
	case s.initial && (record.Bytes() > s.f.source.config.AnswerBytes || s.events*objectBytes > growth*s.f.source.config.AnswerBytes):
		err = s.f.tooLarge()
	case (e.Type == watch.Added || e.Type == watch.Modified) && s.f.source.table.sizeOf(s.f.list) > growth*s.f.source.config.AnswerBytes:
		err = cloud.BadAnswer("watch %s: there are too many objects (spec.limits.answerMiB)", s.f)
	}
	if err != nil {
		if s.initial {
			return s.broken(err), false
		}
		s.garbled = true
		s.fail(err)
		return true, false
	}
	rv := m.GetResourceVersion()
	if e.Type == watch.Bookmark && !s.initial && older(rv, s.newest) {
		s.f.source.config.Log.Info("the cluster has gone back to an earlier state: it is read anew", "upstream", s.f.source.config.Name, "of", s.f.kind.resource)
		s.expire()
		return false, false
	}
	if e.Type == watch.Bookmark && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		s.initial, s.newest = false, rv
	}
	if !s.send(e) {
		return false, false
	}
	if s.rv = rv; !older(rv, s.newest) {
		s.newest = rv
	}
	if s.garbled = false; !s.initial {
		_ = s.f.note(s.ctx, nil)
	}
	return true, true
}

// send gives the reflector an event; false: the stream ends.
func (s *stream) send(e watch.Event) bool {
	select {
	case s.out <- e:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// expire makes the reflector read everything anew.
func (s *stream) expire() {
	s.f.doubt()
	s.send(watch.Event{Type: watch.Error, Object: status(apierrors.NewResourceExpired("everything is read anew"))})
}

// broken ends a stream whose initial objects cannot be read.
func (s *stream) broken(err error) bool {
	if s.ctx.Err() != nil {
		return false
	}
	late := cloud.ReasonOf(err) == v1alpha1.ReasonTimeout
	err = s.refuse(err)
	if s.f.unstreamed = late; late {
		s.f.refused = nil // it may do better in pages
	}
	s.send(watch.Event{Type: watch.Error, Object: status(apierrors.NewServiceUnavailable(err.Error()))})
	return false
}

func status(err *apierrors.StatusError) runtime.Object {
	s := err.Status()
	return &s
}
