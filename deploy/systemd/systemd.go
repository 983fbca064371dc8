// Package systemd holds the units of Fairlead, as Debian packages bring them and
// `fairlead install` writes them. Their settings are in files beside them: a unit is
// replaced by an upgrade, and settings stay.
package systemd

import "embed"

// Units are the units, by their file names. ExecStart names the binary of a package,
// Binary.
//
//go:embed *.service
var Units embed.FS

// Binary is where packages have our program.
const Binary = "/usr/bin/fairlead"

// Drain is the variable of the agent's unit with the flag that has it drain when it stops,
// after all others. It is set only while an agent is taken out of service.
const Drain = "FAIRLEAD_AGENT_STOP"
