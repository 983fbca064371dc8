package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// note notes how a request of a follower ended.
func (s *Source) note(f *follower, err error) {
	s.contact.note(f, err, s.config.Now())
	s.table.note(f.list, err != nil)
	s.table.ring()
}

// clusterUID is the UID of the cluster's namespace kube-system, which tells clusters apart; empty if the credentials do
// not allow the question. It is not asked again if that was done after since. The error of an upstream that is our own
// API has ReasonOwnAPI.
func (s *Source) clusterUID(ctx context.Context, since time.Time) (string, error) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.uidRead.After(since) {
		return s.uid, nil
	}
	var ns corev1.Namespace
	begin := s.config.Now()
	rctx, record := cloud.WithRecord(ctx)
	err := s.identity.Get().Resource("namespaces").Name(metav1.NamespaceSystem).MaxRetries(0).Do(rctx).Into(&ns)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		ns.UID = ""
	case err != nil:
		return "", because("read the namespace "+metav1.NamespaceSystem, err, record)
	case s.config.OwnUID != "" && string(ns.UID) == s.config.OwnUID:
		return "", &cloud.Error{Reason: v1alpha1.ReasonOwnAPI, Err: fmt.Errorf("the upstream %s is the API of this plane", s.config.Name)}
	}
	s.uid, s.uidRead = string(ns.UID), begin
	return s.uid, nil
}

// contact collects what the Sink is told about the upstream's answers.
type contact struct {
	mu      sync.Mutex
	failing map[*follower]error // the last error of each that fails
	back    chan struct{}       // closed when the first follower gets through after all had failed
	last    error               // that was not told yet
	news    bool                // there is something to tell
	well    time.Time           // when it was last told that the upstream answers
	told    bool                // the last that was told is that it answers
}

// note notes how a request ended. The upstream answers while no follower fails.
func (c *contact) note(f *follower, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failing[f] = err
		c.last, c.news = err, true
		return
	}
	if _, failed := c.failing[f]; failed && len(c.failing) == len(f.source.followers) {
		// The upstream was away. That only a part of its answers are errors is no such sign: it may be overloaded.
		close(c.back)
		c.back = make(chan struct{})
	}
	delete(c.failing, f)
	if len(c.failing) == 0 && (!c.told || now.Sub(c.well) >= contactInterval) {
		c.last, c.news = nil, true
	}
}

// returns is closed when the upstream next answers after it was away.
func (c *contact) returns() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back
}

func (c *contact) take(now time.Time) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.news {
		return false, nil
	}
	c.news = false
	if c.told = c.last == nil; c.told {
		c.well = now
	}
	return true, c.last
}
