"""From successive plans to replica counts that do not flap."""
