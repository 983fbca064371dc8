package v1

// How the read API is found: the plane that leads writes this ConfigMap in the namespace fairlead-system, and
// every authenticated user may get it.
const (
	ReadConfigMap = "fairlead-read"
	// ReadURL is its field for the URL, ReadAuthority that for the certificates, in PEM, that its own is signed by,
	// and ReadServerName that for the name in its certificate: addresses change, the name does not.
	ReadURL        = "url"
	ReadAuthority  = "ca.crt"
	ReadServerName = "serverName"
)

// Headers of a page of a list: where the next one begins (the parameter "continue"; absent at the last one), and how
// many rows all pages have.
const (
	ContinueHeader = "Fairlead-Continue"
	TotalHeader    = "Fairlead-Total"
)
