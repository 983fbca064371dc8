package main

import (
	"testing"

	"fairlead.dev/internal/agent"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/console/v1/v1test"
)

// What an agent answers with is what is declared; the answers of planes have their test beside the declarations.
func TestAgentsAnswerAsDeclared(t *testing.T) {
	v1test.Same[agent.Status, v1.AgentStatus](t)
}
