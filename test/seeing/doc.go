// Package seeing holds what people see of a running lab: a real Prometheus reads planes and agents, and every
// dashboard and alert is asked through it.
package seeing
