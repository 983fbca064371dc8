package openstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// startRabbit starts RabbitMQ on loopback: from Debian packages that are unpacked below tools,
// without a service of the system. Erlang's port mapper and its distribution have ports of their
// own, so that several brokers run beside each other. Octavia uses the port without TLS.
func (c *Cloud) startRabbit(port, secure, epmd, distribution int) error {
	root := filepath.Join(c.tools, "rabbitmq")
	homes, err := filepath.Glob(filepath.Join(root, "usr", "lib", "rabbitmq", "lib", "rabbitmq_server-*"))
	if err != nil || len(homes) == 0 {
		return fmt.Errorf("%w: no RabbitMQ in %s", ErrMissing, root)
	}
	dir := filepath.Join(c.dir, "rabbit")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "plugins"), []byte("[].\n"), 0o600); err != nil {
		return err
	}
	config := fmt.Sprintf(`[{rabbit, [{ssl_listeners, [{"127.0.0.1", %d}]},
  {ssl_options, [{cacertfile, "%[2]s/ca.pem"}, {certfile, "%[2]s/server.pem"}, {keyfile, "%[2]s/server.key"}, {verify, verify_none}]}]}].
`, secure, c.dir)
	if err := os.WriteFile(filepath.Join(dir, "rabbitmq.config"), []byte(config), 0o600); err != nil {
		return err
	}
	erlang := filepath.Join(root, "usr", "lib", "erlang")
	env := []string{
		"HOME=" + dir, "ERL_ROOTDIR=" + erlang, "PATH=" + filepath.Join(erlang, "bin") + ":" + os.Getenv("PATH"),
		"RABBITMQ_HOME=" + homes[0], "RABBITMQ_NODENAME=rabbit-" + strconv.Itoa(port) + "@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT=" + strconv.Itoa(port),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "mnesia"), "RABBITMQ_LOG_BASE=" + filepath.Join(dir, "log"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"), "RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq.config"),
		"RABBITMQ_CONF_ENV_FILE=" + filepath.Join(dir, "none"), "RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT=" + strconv.Itoa(epmd), "RABBITMQ_DIST_PORT=" + strconv.Itoa(distribution),
		fmt.Sprintf("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} inet_dist_listen_min %d inet_dist_listen_max %d", distribution, distribution),
	}
	python := filepath.Join(c.tools, "venv", "bin", "python")
	// The port mapper would make itself a daemon, and outlive us.
	if err := c.start("epmd", epmd, []string{python, filepath.Join(c.dir, "run.py"), filepath.Join(erlang, "bin", "epmd")}, env); err != nil {
		return err
	}
	return c.start("rabbit", secure, []string{python, filepath.Join(c.dir, "run.py"), filepath.Join(homes[0], "sbin", "rabbitmq-server")}, env)
}
