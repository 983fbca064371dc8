package openstack

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"
)

//go:embed python/*.py etc/*.conf
var files embed.FS

// ErrMissing is wrapped when the programs of a real cloud are not installed.
var ErrMissing = errors.New("no OpenStack: tools/setup.sh openstack installs it (.tools/openstack)")

// Password of the user admin.
const Password = "secret"

// Config of a real cloud.
type Config struct {
	// Dir is an empty directory for configuration, databases and logs.
	Dir string
	// Tools is where tools/setup.sh has put the programs; empty: .tools/openstack in the
	// current directory or one above it.
	Tools string
	// Notifications starts RabbitMQ, to which octavia sends an event of each change.
	Notifications bool
	// PageLimit bounds the pages of octavia's lists; 0: 1000.
	PageLimit int
}

// Cloud is a real keystone and a real octavia on loopback, with the project admin and the user
// of that name.
type Cloud struct {
	// AuthURL is keystone's, and LoadBalancerURL octavia's.
	AuthURL, LoadBalancerURL string
	// NotificationsURL is RabbitMQ's, with TLS; empty without notifications.
	NotificationsURL string
	// Authorities verify RabbitMQ's certificate, as PEM.
	Authorities []byte

	tools, dir string
	settings   settings
	seeded     int
	rabbit     func() error // starts RabbitMQ

	mu        sync.Mutex
	processes []*process // in the order of their start
}

// settings fill in the files below etc.
type settings struct {
	Dir, Password                         string
	KeystonePort, OctaviaPort, RabbitPort int
	PageLimit                             int
}

// Find returns the directory of the programs; the error wraps ErrMissing.
func Find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		tools := filepath.Join(dir, ".tools", "openstack")
		if _, err := os.Stat(filepath.Join(tools, "venv", "bin", "python")); err == nil {
			return tools, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", ErrMissing
		}
		dir = above
	}
}

// Start starts a cloud; it takes about 15 seconds. It runs until Stop, and ends with this
// process at the latest.
func Start(ctx context.Context, cfg Config) (_ *Cloud, err error) {
	if cfg.Tools == "" {
		if cfg.Tools, err = Find(); err != nil {
			return nil, err
		}
	}
	c := &Cloud{tools: cfg.Tools, dir: cfg.Dir, settings: settings{Dir: cfg.Dir, Password: Password, PageLimit: cmp.Or(cfg.PageLimit, 1000)}}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	c.settings.KeystonePort, c.settings.OctaviaPort = ports[0], ports[1]
	c.AuthURL = fmt.Sprintf("http://127.0.0.1:%d/v3", ports[0])
	c.LoadBalancerURL = fmt.Sprintf("http://127.0.0.1:%d/", ports[1])
	if cfg.Notifications {
		c.settings.RabbitPort = ports[2]
		c.NotificationsURL = fmt.Sprintf("amqps://guest:guest@127.0.0.1:%d/", ports[5])
	}
	if err := c.write(); err != nil {
		return nil, err
	}
	if err := certify(cfg.Dir); err != nil {
		return nil, err
	}
	if c.Authorities, err = os.ReadFile(filepath.Join(cfg.Dir, "ca.pem")); err != nil {
		return nil, err
	}
	if cfg.Notifications {
		c.rabbit = func() error { return c.startRabbit(ports[2], ports[5], ports[3], ports[4]) }
		if err := c.rabbit(); err != nil {
			return nil, err
		}
	}
	if err := c.python("keystone", "serve_keystone.py", strconv.Itoa(ports[0]), filepath.Join(cfg.Dir, "keystone.conf"), Password); err != nil {
		return nil, err
	}
	if err := c.python("octavia", "serve_octavia.py", strconv.Itoa(ports[1]), filepath.Join(cfg.Dir, "octavia.conf")); err != nil {
		return nil, err
	}
	for _, p := range c.processes {
		if err := p.await(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.register(ctx); err != nil {
		return nil, fmt.Errorf("register octavia's endpoint: %w", err)
	}
	return c, nil
}

// write writes the files that are embedded here.
func (c *Cloud) write() error {
	for _, dir := range []string{"python", "etc"} {
		entries, err := files.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			data, err := files.ReadFile(dir + "/" + entry.Name())
			if err != nil {
				return err
			}
			if dir == "etc" {
				t, err := template.New(entry.Name()).Parse(string(data))
				if err != nil {
					return err
				}
				var text bytes.Buffer
				if err := t.Execute(&text, c.settings); err != nil {
					return err
				}
				data = text.Bytes()
			}
			if err := os.WriteFile(filepath.Join(c.dir, entry.Name()), data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// register puts octavia into keystone's catalog.
func (c *Cloud) register(ctx context.Context) error {
	provider, err := c.Provider(ctx, "admin", Password, "admin")
	if err != nil {
		return err
	}
	identity, err := clients.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return err
	}
	service, err := services.Create(ctx, identity, services.CreateOpts{Type: "load-balancer", Extra: map[string]any{"name": "octavia"}}).Extract()
	if err != nil {
		return err
	}
	_, err = endpoints.Create(ctx, identity, endpoints.CreateOpts{
		Availability: gophercloud.AvailabilityPublic, Name: "octavia", Region: "RegionOne", ServiceID: service.ID, URL: c.LoadBalancerURL,
	}).Extract()
	return err
}

// Provider signs a user of the domain Default in to a project, by name.
func (c *Cloud) Provider(ctx context.Context, user, password, project string) (*gophercloud.ProviderClient, error) {
	return clients.AuthenticatedClient(ctx, gophercloud.AuthOptions{
		IdentityEndpoint: c.AuthURL, Username: user, Password: password, DomainName: "Default", TenantName: project, AllowReauth: true,
	})
}

// CloudsYAML is a clouds.yaml of the user admin.
func (c *Cloud) CloudsYAML() []byte {
	return []byte("clouds: {lab: {region_name: RegionOne, auth: {auth_url: '" + c.AuthURL +
		"', username: admin, password: " + Password + ", project_name: admin, user_domain_name: Default, project_domain_name: Default}}}\n")
}

// Seed puts active load balancers into projects, each with a listener of port 80 and a pool
// of members, and returns their IDs.
func (c *Cloud) Seed(ctx context.Context, balancers, members int, projectIDs ...string) ([]string, error) {
	seed := exec.CommandContext(ctx, filepath.Join(c.tools, "venv", "bin", "python"), filepath.Join(c.dir, "seed_octavia.py"),
		filepath.Join(c.dir, "octavia.conf"), strings.Join(projectIDs, ","), strconv.Itoa(balancers), strconv.Itoa(members), strconv.Itoa(c.seeded))
	var stderr bytes.Buffer
	seed.Stderr = &stderr
	out, err := seed.Output()
	if err != nil {
		return nil, fmt.Errorf("seed octavia: %w: %s", err, lastLine(stderr.String()))
	}
	c.seeded += balancers * len(projectIDs)
	return strings.Fields(string(out)), nil
}

// Stop ends all processes and returns when they have ended. It may be called again.
func (c *Cloud) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.processes) - 1; i >= 0; i-- {
		c.processes[i].stop()
	}
	c.processes = nil
}

// StopRabbit ends RabbitMQ alone, until StartRabbit.
func (c *Cloud) StopRabbit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = slices.DeleteFunc(c.processes, func(p *process) bool {
		if p.name != "epmd" && p.name != "rabbit" {
			return false
		}
		p.stop()
		return true
	})
}

// StartRabbit starts RabbitMQ again after StopRabbit.
func (c *Cloud) StartRabbit(ctx context.Context) error {
	if err := c.rabbit(); err != nil {
		return err
	}
	c.mu.Lock()
	started := c.processes[len(c.processes)-2:]
	c.mu.Unlock()
	for _, p := range started {
		if err := p.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// python starts one of the scripts.
func (c *Cloud) python(name, script string, args ...string) error {
	argv := append([]string{filepath.Join(c.tools, "venv", "bin", "python"), filepath.Join(c.dir, script)}, args...)
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	return c.start(name, port, argv, nil)
}

// process is a process with a group of its own.
type process struct {
	name string
	port int // that it will listen at
	log  string
	cmd  *exec.Cmd
	hold *os.File // our end of its standard input: it ends when this is closed
	done chan struct{}
}

func (c *Cloud) start(name string, port int, argv, env []string) error {
	p := &process{name: name, port: port, log: filepath.Join(c.dir, name+".out"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	read, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	p.cmd, p.hold = exec.Command(argv[0], argv[1:]...), hold
	p.cmd.Env, p.cmd.Dir = append(os.Environ(), env...), c.dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = read, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = hold.Close()
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, p)
	return nil
}

// await waits until a process listens.
func (p *process) await(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.done:
			out, _ := os.ReadFile(p.log)
			return fmt.Errorf("%s ended: %s (%s)", p.name, lastLine(string(out)), p.log)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%s)", p.name, ctx.Err(), p.log)
		}
	}
}

func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // there is nothing to save
	<-p.done
	_ = p.hold.Close()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// freePorts finds ports of loopback that nobody listens at.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at once, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
