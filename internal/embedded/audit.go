package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Bounds of the audit log: the file that is written and those before it.
const (
	auditMegabytes = 10
	auditBackups   = 4
)

// auditPolicy has writes of what planes read logged, with who and when and without contents. Of discovery and status there would
// be thousands.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: # every kind's status is written often
  - group: fairlead.dev
    resources: ["*/status"]
  - group: gateway.networking.k8s.io
    resources: ["*/status"]
  - group: contour.heptio.com
    resources: ["*/status"]
  - group: ""
    resources: [services/status, namespaces/status]
- level: Metadata
  resources:
  - group: fairlead.dev
    resources: ["*"]
  - group: gateway.networking.k8s.io
    resources: ["*"]
  - group: contour.heptio.com
    resources: ["*"]
  - group: ""
    resources: [services, namespaces, secrets, configmaps]
  - group: rbac.authorization.k8s.io
    resources: ["*"]
  - group: admissionregistration.k8s.io
    resources: ["*"]
- level: None
`

func (c Config) auditDir() string { return filepath.Join(c.DataDir, "audit") }

// AuditLog is where an API with this data directory writes its audit log.
func AuditLog(dataDir string) string { return filepath.Join(dataDir, "audit", "audit.log") }

// prepareAudit writes the policy, and makes the directory of the log, which only our user can read.
func (c Config) prepareAudit() error {
	if err := os.MkdirAll(c.auditDir(), 0o700); err != nil {
		return fmt.Errorf("make the directory of the audit log: %w", err)
	}
	if err := os.WriteFile(c.auditPolicyPath(), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	return nil
}

func (c Config) auditPolicyPath() string { return filepath.Join(c.auditDir(), "policy.yaml") }

func (c Config) auditFlags() []string {
	return []string{
		"--audit-policy-file=" + c.auditPolicyPath(),
		"--audit-log-path=" + AuditLog(c.DataDir),
		"--audit-log-maxsize=" + strconv.Itoa(auditMegabytes),
		"--audit-log-maxbackup=" + strconv.Itoa(auditBackups),
	}
}
