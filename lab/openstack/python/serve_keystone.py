"""serve_keystone.py PORT CONFIG PASSWORD: makes a keystone with its database, if there is none, and serves it on loopback."""
import grp
import os
import pwd
import sys

import parent

port, conf, password = int(sys.argv[1]), sys.argv[2], sys.argv[3]
url = "http://127.0.0.1:%d/v3/" % port
os.environ["OS_KEYSTONE_CONFIG_DIR"] = os.path.dirname(conf)

from keystone.cmd import cli  # noqa: E402

owner = ["--keystone-user", pwd.getpwuid(os.getuid()).pw_name, "--keystone-group", grp.getgrgid(os.getgid()).gr_name]
for command in (
    ["db_sync"],
    ["fernet_setup"] + owner,
    ["credential_setup"] + owner,
    ["bootstrap", "--bootstrap-password", password, "--bootstrap-region-id", "RegionOne",
     "--bootstrap-public-url", url, "--bootstrap-internal-url", url, "--bootstrap-admin-url", url],
):
    pid = os.fork()  # each reads its own arguments; what is imported is imported once
    if pid == 0:
        cli.main(argv=["keystone-manage", "--config-file", conf] + command)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("keystone-manage %s failed" % command[0])

parent.watch()
sys.argv = ["keystone"]
from keystone.wsgi.api import application  # noqa: E402
import waitress  # noqa: E402

waitress.serve(application, host="127.0.0.1", port=port, threads=8, ident="keystone")
