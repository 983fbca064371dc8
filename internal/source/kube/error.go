package kube

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/source/cloud"
)

// because says what failed with an error of a client. Of the error it keeps the text and the class, not the answer.
func because(what string, err error, record *cloud.Record) *cloud.Error {
	e := classify(err, record)
	return &cloud.Error{Reason: e.Reason, RetryAfter: e.RetryAfter, Err: fmt.Errorf("%s: %s", what, e.Error())}
}

// classify gives an error of a client its class.
func classify(err error, record *cloud.Record) *cloud.Error {
	if e := record.Err(); e != nil {
		return &cloud.Error{Reason: e.Reason, RetryAfter: e.RetryAfter, Err: err}
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code > 0 {
		e := cloud.Classify(err, int(status.Status().Code))
		e.RetryAfter = max(e.RetryAfter, retryAfter(status.Status()))
		return e
	}
	var e *cloud.Error
	if errors.As(err, &e) {
		return cloud.Classify(err, 0)
	}
	// The answer arrived, and it cannot be read.
	return cloud.BadAnswer("%w", err)
}

func retryAfter(s metav1.Status) time.Duration {
	if s.Details == nil {
		return 0
	}
	return min(time.Duration(s.Details.RetryAfterSeconds)*time.Second, cloud.MaxRetryAfter)
}

// stale says whether an error asks for another version: the wanted one is too old, or is one of the future.
func stale(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// older says whether a resource version is before another one.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errors.Join(errX, errY) == nil && x < y
}
