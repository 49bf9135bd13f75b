module openclaw.dev/cluster/probe

go 1.24.0
