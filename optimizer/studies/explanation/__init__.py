"""Why a plan is as it is: questions answered by solving again with one thing changed."""
