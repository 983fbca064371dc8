package rig

import (
	"testing"
	"time"
)

func TestToldTimes(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local)
	log := `I1121 07:00:00.100000   77 loader.go:407] Config loaded from file:  /x
I1121 07:00:01.500000   77 round_trippers.go:632] "Response" verb="GET" url="https://10.0.0.1:6443/apis/g/v1/namespaces/n/rs/one" status="200 OK" milliseconds=3
I1121 07:00:01.523456   77 round_trippers.go:632] "Response" verb="PATCH" url="https://10.0.0.1:6443/apis/g/v1/namespaces/n/rs/one?fieldManager=x" status="200 OK" milliseconds=12
I1121 07:00:01.600000   77 round_trippers.go:632] "Response" verb="POST" url="https://10.0.0.1:6443/apis/g/v1/namespaces/n/rs" status="403 Forbidden" milliseconds=1
`
	got := toldTimes(log, now)
	want := time.Date(2026, 11, 21, 7, 0, 1, 511456000, time.Local)
	if at, ok := (Applied{Told: got}).ToldOf("/rs/one"); len(got) != 1 || !ok || !at.Equal(want) {
		t.Errorf("told at %v, want one at %v", got, want)
	}
	if _, ok := (Applied{Told: got}).ToldOf("/rs/two"); ok {
		t.Error("an object that was not sent has a time")
	}
	if got := klogLine.ReplaceAllString(log+"error: no objects passed to apply\n", ""); got != "error: no objects passed to apply\n" {
		t.Errorf("without log lines: %q", got)
	}
}
