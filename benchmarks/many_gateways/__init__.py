"""Three gateways behind HAProxy under load while one after another dies: what is lost, and how long anybody waits."""
